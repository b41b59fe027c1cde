package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"celld/internal/logfilter"
	"celld/internal/node"
)

func newServe() *cobra.Command {
	c := &cobra.Command{
		Use:   "serve --bucket URL",
		Short: "Run a node of a fleet",
		Long: "Runs one node. It serves what is deployed in the bucket, takes cells that nobody has, and hands them over when it\n" +
			"is stopped with SIGTERM. Exit codes: 0 after a graceful stop, 1 if it cannot start, 3 if it fenced itself: a\n" +
			"supervisor must then start it again, without a limit on attempts, after at least one TTL.",
		Example: "  celld serve --bucket file:///var/lib/celld/bucket --listen 127.0.0.1:8080\n" +
			"  celld serve --bucket s3://cells --listen 0.0.0.0:8080 --internal-listen 10.0.0.1:9000",
		Args: cobra.NoArgs,
	}
	settings := settingFlags(c.Flags())
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := settings(node.Defaults())
		if err != nil {
			return err
		}
		if err := logfilter.Setup(os.Stderr, os.Environ()); err != nil {
			return err
		}
		if s.WorkDir == "" {
			if s.WorkDir, err = node.DefaultWorkDir(s.Bucket); err != nil {
				return err
			}
		}
		return runNode(cmd.Context(), s, node.Options{}, func(n *node.Node) {
			fmt.Printf("celld %s serves http://%s (internal %s)\n", version(), n.PublicAddr(), n.InternalAddr())
		})
	}
	return c
}

// runNode starts a node and lets it run until a signal or its own end. A second
// signal ends the process at once.
func runNode(ctx context.Context, s node.Settings, o node.Options, started func(*node.Node)) error {
	stop := make(chan os.Signal, 2)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(stop)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	interrupted := make(chan struct{})
	go func() {
		select {
		case <-stop:
			close(interrupted)
			cancel()
		case <-done:
			return
		}
		select {
		case <-stop:
			os.Exit(130)
		case <-done:
		}
	}()
	n, err := node.Start(ctx, s, o)
	if err != nil {
		select {
		case <-interrupted:
			return nil // stopped before it had begun
		default:
		}
		return err
	}
	started(n)
	err = n.Wait(ctx)
	if errors.Is(err, node.ErrFenced) {
		return exitCode(3)
	}
	return err
}
