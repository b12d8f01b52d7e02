"""Every JSON shape that crosses our border, as frozen pydantic models; no behaviour beyond reading and refusing."""
