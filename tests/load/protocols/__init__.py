"""One suite that every wire protocol joins with its transcripts."""
