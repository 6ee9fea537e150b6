"""`dream lsp`: the findings and fixes of `dream check` in an editor, on text not yet saved."""
