"""Reading streams: offsets, batch planning, record batches, filter push-down, data loss, and archives."""
