"""Result files of other tools as `ImportedResult`s: one module a tool, which says what of it is what of ours."""
