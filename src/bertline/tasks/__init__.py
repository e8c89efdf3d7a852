"""Descriptions of the fine-tuning tasks, without heavy imports: planning and reports read them, too."""
