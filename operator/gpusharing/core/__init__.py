"""Pure decisions: values in, values out; `now` is an argument."""
