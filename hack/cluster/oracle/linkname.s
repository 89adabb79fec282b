// Empty: with a file in assembly the compiler takes functions without a body, which go:linkname needs.
