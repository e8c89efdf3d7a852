"""Tables, figures and the report page of the runs' results.

`scores` compares fine-tunings, `figures` draws, `page` writes the report, `terminal` prints its summary.
"""
