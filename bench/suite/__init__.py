"""YAML to validated, frozen cases."""
