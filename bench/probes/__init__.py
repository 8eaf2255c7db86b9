"""One module a vendor: reads power and memory through the vendor's own interface, never sets anything."""
