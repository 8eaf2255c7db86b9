"""The report that can be sent: one HTML file with tables and charts, in English or Chinese. Records to bytes."""

from bench.reports.html.page import Report, report_html
from bench.reports.html.power import Trace

__all__ = ["Report", "Trace", "report_html"]
