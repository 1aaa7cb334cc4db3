"""What a notebook shows of the SDK's values: tables of HTML, and a job's curve as SVG, without any script.

html_tables  values and lists of them as tables; every word in them is escaped
job_picture  a job's loss and metric as they grow, with workers lost and joined
live_display shows a picture in a cell, and shows it anew as events come
"""
