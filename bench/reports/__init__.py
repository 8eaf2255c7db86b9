"""Records to text: tables and exporters."""
