//go:build tools

// Package etcd names the programs, so that `go mod tidy` keeps their modules.
package etcd

import (
	_ "go.etcd.io/etcd/etcdctl/v3"
	_ "go.etcd.io/etcd/server/v3"
)
