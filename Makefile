# make alone prints what there is.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo sandbox build test vet lint vuln bench chaos fuzz generate deps kube tools

# Two packages at a time and a limit far above what any needs: a hang ends with a stack trace.
GOTEST := go test -p 2 -timeout 45m

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: build ## create a VM environment on the embedded simulated AWS, run it again, tear it down
	@bin/zopday demo -f examples/vm-aws-fixed-lb.yaml

sandbox: build ## serve the product and the simulated clouds together on this machine
	@bin/zopday sandbox

build: ## build bin/zopday
	@mkdir -p bin
	@go build -o bin/ ./cmd/zopday

test: deps kube vet ## install what the tests need if it is missing, then vet and test everything
	$(GOTEST) ./...

vet:
	go vet ./...

lint: tools vuln ## golangci-lint, shellcheck, go mod verify and known vulnerabilities
	bin/golangci-lint run ./...
	scripts/deps shellcheck
	shellcheck .ci/run scripts/*
	go mod verify

vuln: tools ## known vulnerabilities, from the database that is a Go module
	scripts/vulncheck ./...

bench: deps kube ## cloud calls, times, parked jobs and the memory of 20 clusters in parallel; steps a second beside plain SQL, River and DBOS
	@go run ./bench
	@cd bench/peers && go run .

chaos: deps kube ## the crash matrix at every call, write and read, of every environment; slow
	E2E_ALL=1 go test -count=1 -p 1 -timeout 3h ./internal/e2e/...

fuzz: ## run every fuzz target for FUZZTIME, 10s by default
	@scripts/fuzz

kube: ## build the Kubernetes control plane of the simulated clusters; minutes, the first time
	@scripts/kube

generate: ## write the generated code anew
	scripts/generate

deps: ## install the Debian packages and the npm module that tests and simulated datastores need
	@scripts/deps chromium cloud-init mariadb-server openssl postgresql redis-server shellcheck
	@scripts/assets axe

tools:
	@scripts/tools golangci-lint indexdb vulncheck
