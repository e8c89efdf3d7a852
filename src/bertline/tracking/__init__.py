"""From what the stages left on disk to MLflow.

`records` reads what a run consists of and how far it has come, `layout` says what MLflow should hold for it, `store`
makes MLflow hold that, `words` says it for people. Trainers know nothing of this.
"""
