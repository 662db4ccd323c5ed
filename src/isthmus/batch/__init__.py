"""Several methods by several seeds on one federation."""
