# The commands that developers use; CONTRIBUTING.md says when.
GO ?= go
STATICCHECK = $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME ?= 30s

.PHONY: all check test race bench fuzz

all: check test

check:
	@test -z "$$(gofmt -l .)" || { gofmt -d .; exit 1; }
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

# Every fuzz target for FUZZTIME, one after another.
fuzz:
	@set -e; for pkg in $$($(GO) list ./...); do \
	  for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "fuzzing $$pkg $$target"; \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg; \
	  done; \
	done
