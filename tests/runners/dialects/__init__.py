"""One scripted engine a real one: its programs, its protocol, its log. Standard library only."""
