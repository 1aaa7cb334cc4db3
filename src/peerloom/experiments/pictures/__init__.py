"""Pictures of results and of what a live system remembers, readable in grey.

Lines differ by dash and marker, bars by hatching, so that no colour is needed. Every axis has a label with
its unit. The same input gives the same file.
"""
