"""Sources of external knowledge behind one port: services, vector stores, caches and fallbacks; statuses, no errors."""
