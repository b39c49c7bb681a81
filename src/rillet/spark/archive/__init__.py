"""The Parquet archive of streams: its folder and manifest (layout.py), reading its files (parquet_reader.py)."""
