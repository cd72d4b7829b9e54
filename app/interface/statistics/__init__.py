"""The statistics screen: charts and tables of the gain from drafting over weeks.

A new chart or table is a function in `page.py` that turns the report of `app/usage_report.py` into
lines of text.
"""
