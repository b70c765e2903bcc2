# The commands that developers use; CONTRIBUTING.md says when.
GO ?= go
STATICCHECK = $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME ?= 5000x

.PHONY: all check test race bench fuzz captures

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

# Every fuzz target for FUZZTIME, one after another: so many executions, or a time as
# 10m. At the end of a time go may print "context deadline exceeded" and fail; it is a
# finding only when it also names a failing input. A package that does not
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

# The capture files that tests read, anew, with tools of Debian; needs root.
captures:
	capture/testdata/make.sh capture/testdata

# What packages bring along is made in build/.
BUILD ?= build

# The manual pages of all commands.
man:
	$(GO) run ./cmd/pktdirector man $(BUILD)/man

# What shells source.
completion:
	@mkdir -p $(BUILD)/completion
	for shell in bash zsh fish; do $(GO) run ./cmd/pktdirector completion $$shell > $(BUILD)/completion/$$shell || exit 1; done

# A Debian package, of git's version unless VERSION is another.
deb:
	GO="$(GO)" packaging/deb.sh $(BUILD)
