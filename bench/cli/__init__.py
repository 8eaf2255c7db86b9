"""Click commands: the only place that wires objects together. No arithmetic here."""
