"""The statistics screen: how drafting has grown over weeks, by charts and tables.

A new chart or table is a function in `page.py` that makes lines of text from the report; what the
report holds is in `app/usage_report.py`.
"""
