"""Jobs of CI: call a forge, keep one comment up to date, store results on a branch, write workflows.
No words about a verdict, which report/ has. GitHub's own is in github/, GitLab's in gitlab/.
"""
