module github.com/bailey-sandbox/bailey

go 1.26.0
