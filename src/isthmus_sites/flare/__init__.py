"""Messages between server and sites over NVFlare: keys, kits, processes, and what restarts them."""
