package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"celld/internal/deploy"
	"celld/internal/deploy/dev"
	"celld/internal/deploy/engine"
	"celld/internal/logfilter"
	"celld/internal/node"
	"celld/internal/worker"
	"celld/internal/wrangler"
)

// devDir is where `celld dev` keeps bucket and work files, in the project.
const devDir = ".celld/dev"

type devOptions struct {
	host           string
	port           int
	clean, noWatch bool
	logs           string
	env            string
	configs        []string
}

func newDev() *cobra.Command {
	var o devOptions
	c := &cobra.Command{
		Use:   "dev [DIR|CONFIG]",
		Short: "Run a project on this machine, adopting every change",
		Long: "Runs the project with a bucket that is a directory in it (" + devDir + "), so that data is there again the next time.\n" +
			"Sources and configuration are watched: a change is adopted without losing state; if it does not build, the old\n" +
			"code goes on and the error is shown.",
		Example: "  celld dev examples/counter\n  celld dev -c web -c jobs --port 8787",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runDev(cmd.Context(), projects(args, o.configs), o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.host, "host", "127.0.0.1", "address to listen on")
	f.IntVar(&o.port, "port", 9876, "port to listen on (0: any)")
	f.BoolVar(&o.clean, "clean", false, "delete all data of earlier runs first")
	f.BoolVar(&o.noWatch, "no-watch", false, "do not watch for changes")
	f.StringVar(&o.logs, "logs", "", "log filter, such as debug or celld=info,store=debug (default: warnings and console output)")
	f.StringVarP(&o.env, "env", "e", "", "environment of the configuration")
	f.StringArrayVarP(&o.configs, "config", "c", nil, "configuration file; give several to run several Workers together")
	return c
}

func runDev(ctx context.Context, projects []string, o devOptions) error {
	if o.port < 0 || o.port > 65535 {
		return fmt.Errorf("--port %d is not between 0 and 65535", o.port)
	}
	if err := setupDevLogs(o.logs); err != nil {
		return err
	}
	file, err := wrangler.Find(projects[0])
	if err != nil {
		return err
	}
	home := filepath.Join(filepath.Dir(file), devDir)
	if home, err = filepath.Abs(home); err != nil {
		return err
	}
	if o.clean {
		if err := node.Clean(home); err != nil {
			return err
		}
	}
	s, err := devSettings(home, o)
	if err != nil {
		return err
	}
	var serving *node.Node
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watched := make(chan error, 1)
	err = runNode(ctx, s, node.Options{ShowErrors: true}, func(n *node.Node) {
		serving = n
		go func() { watched <- watch(ctx, n, projects, o) }()
	})
	cancel()
	if serving != nil {
		if werr := <-watched; err == nil && werr != nil && !errors.Is(werr, context.Canceled) {
			err = werr
		}
	}
	return err
}

func setupDevLogs(filter string) error {
	environ := os.Environ()
	if filter != "" {
		environ = append(environ, "CELLD_LOG="+filter)
	} else if os.Getenv("CELLD_LOG") == "" && os.Getenv("RUST_LOG") == "" {
		environ = append(environ, "CELLD_LOG=warn,console=debug")
	}
	return logfilter.Setup(os.Stderr, environ)
}

// devSettings are a node's for one project on one machine: no peers, quick
// polls, everything below home. The environment of a fleet's node does not apply.
func devSettings(home string, o devOptions) (node.Settings, error) {
	s := node.Defaults()
	s.Bucket = "file://" + filepath.Join(home, "bucket")
	s.WorkDir = filepath.Join(home, "work")
	s.Listen = net.JoinHostPort(o.host, strconv.Itoa(o.port))
	s.InternalListen = "127.0.0.1:0"
	s.Durability = "bucket"
	s.WakerTick = time.Second
	s.ShutdownTotal = 5 * time.Second
	return s, nil
}

// watch builds, publishes and adopts until ctx ends.
func watch(ctx context.Context, n *node.Node, projects []string, o devOptions) error {
	check := engine.Checker{Runtime: n.Runtime(), Options: worker.Options{HeapLimit: node.Defaults().HeapLimit, CPULimit: node.Defaults().CPULimit}}
	publish := func(ctx context.Context, d *deploy.Deployment) error {
		if _, err := deploy.Publish(ctx, n.Store(), d, check); err != nil {
			return err
		}
		return n.Adopt(ctx)
	}
	first := true
	report := func(e dev.Event) {
		switch {
		case e.Err != nil:
			fmt.Fprintln(os.Stderr, failure(os.Stderr, e.Err))
			if !first {
				fmt.Fprintln(os.Stderr, "the code before this change goes on")
			}
		case e.Notice != "":
			fmt.Fprintln(os.Stderr, "notice:", e.Notice)
		case e.Published != nil && first:
			first = false
			fmt.Printf("celld dev: http://%s  (version %s)\n", n.PublicAddr(), e.Published.Version)
		case e.Published != nil:
			fmt.Printf("adopted version %s\n", e.Published.Version)
		case e.Unchanged && first:
			first = false
			fmt.Printf("celld dev: http://%s\n", n.PublicAddr())
		}
	}
	err := dev.Run(ctx, dev.Options{Configs: projects, Env: o.env, Once: o.noWatch, Output: os.Stderr}, publish, report)
	if o.noWatch && err == nil {
		<-ctx.Done()
		return nil
	}
	if o.noWatch && err != nil {
		n.Stop()
	}
	return err
}
