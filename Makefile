# The commands that developers use; CONTRIBUTING.md says when.
GO ?= go
STATICCHECK = $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME ?= 30s

.PHONY: all check test race bench fuzz

all: check test

check:
	@bad=$$(gofmt -l .) || { echo "gofmt failed, or is missing: it comes with Go"; exit 1; }; \
	test -z "$$bad" || { gofmt -d .; exit 1; }
	$(GO) vet ./...
	$(STATICCHECK) ./...

test:
	$(GO) test ./...

race:
	CGO_ENABLED=1 $(GO) test -race -short ./...

# Every benchmark once by default; BENCHTIME=2s measures.
BENCHTIME ?= 1x
bench:
	$(GO) test -run '^$$' -bench . -benchtime $(BENCHTIME) ./...

# Every fuzz target for FUZZTIME, one after another. A package that does not
# build ends it: only what a command prints goes through grep, which finds none
# in most packages.
fuzz:
	@set -e; pkgs=$$($(GO) list ./...); for pkg in $$pkgs; do \
	  listed=$$($(GO) test -list '^Fuzz' $$pkg) || { echo "$$listed"; exit 1; }; \
	  for target in $$(echo "$$listed" | grep '^Fuzz'); do \
	    echo "fuzzing $$pkg $$target"; \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg; \
	  done; \
	done
