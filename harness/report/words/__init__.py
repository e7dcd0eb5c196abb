"""A verdict in words, the same in terminal, pytest, comment, check and page. No tables and no markup."""
