"""Tables, figures and the page that show what the runs came to.

`scores` puts fine-tunings side by side, `figures` draws, `page` writes the report, `terminal` prints its essence.
"""
