"""What is GitLab's own: its predefined variables, its API, the files of its pipelines.

What a note on a merge request says is in `harness.output.review`, how one is kept up to date in
`harness.forges`.
"""
