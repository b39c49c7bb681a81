"""Consumer groups: groupMode=follow moves a group to the committed offset, groupMode=deliver reads as a consumer."""
