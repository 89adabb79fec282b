module gpusharing.io/bench/reference

go 1.22
