// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/docker/cli/cli"
	"github.com/docker/cli/cli/command"
	"github.com/docker/cli/cli/command/formatter"
	cliflags "github.com/docker/cli/cli/flags"
	"github.com/docker/cli/templates"
	"github.com/docker/docker/api/types/system"
	units "github.com/docker/go-units"
	"github.com/spf13/cobra"
)

// infoTemplate is what `satl info` prints, in docker's words and order.
const infoTemplate = `Client: satl
 Version: {{.ClientInfo.Version}}

Server:
 Containers: {{.Containers}}
  Running: {{.ContainersRunning}}
  Paused: {{.ContainersPaused}}
  Stopped: {{.ContainersStopped}}
 Images: {{.Images}}
 Server Version: {{.ServerVersion}}
 Storage Driver: {{.Driver}}{{range .DriverStatus}}
  {{index . 0}}: {{index . 1}}{{end}}
 Logging Driver: {{.LoggingDriver}}
 Swarm: {{.Swarm.LocalNodeState}}{{if .Swarm.NodeID}}
  NodeID: {{.Swarm.NodeID}}{{with .Swarm.Error}}
  Error: {{.}}{{end}}
  Is Manager: {{.Swarm.ControlAvailable}}{{if .Swarm.Cluster}}
  ClusterID: {{.Swarm.Cluster.ID}}
  Managers: {{.Swarm.Managers}}
  Nodes: {{.Swarm.Nodes}}{{end}}
  Node Address: {{.Swarm.NodeAddr}}{{if .Swarm.RemoteManagers}}
  Manager Addresses:{{range .Swarm.RemoteManagers}}
   {{.Addr}}{{end}}{{end}}{{end}}
 Default Runtime: {{.DefaultRuntime}}
 Kernel Version: {{.KernelVersion}}
 Operating System: {{.OperatingSystem}}
 OSType: {{.OSType}}
 Architecture: {{.Architecture}}
 CPUs: {{.NCPU}}
 Total Memory: {{.ClientInfo.Memory}}
 Name: {{.Name}}
 ID: {{.ID}}
 Root Dir: {{.DockerRootDir}}
 Debug Mode: {{.Debug}}{{if .Labels}}
 Labels:{{range .Labels}}
  {{.}}{{end}}{{end}}`

// clientInfo is the client's part of `satl info`.
type clientInfo struct {
	Version   string
	Platform  string
	GoVersion string
	Os        string
	Arch      string
	Memory    string `json:"-"` // the server's, in words
}

// newInfo is `satl info` in place of docker's, which runs every docker plugin
// that it finds.
func newInfo(docker command.Cli) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:               "info [OPTIONS]",
		Short:             "Display system-wide information",
		Args:              cli.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		Annotations:       map[string]string{"category-top": "12", "aliases": "satl system info, satl info"},
		RunE:              func(cmd *cobra.Command, _ []string) error { return info(cmd, docker, format) },
	}
	cmd.Flags().StringVarP(&format, "format", "f", "", cliflags.InspectFormatHelp)
	return cmd
}

func info(cmd *cobra.Command, docker command.Cli, format string) error {
	switch format {
	case "":
		format = infoTemplate
	case formatter.JSONFormatKey:
		format = formatter.JSONFormat
	}
	tmpl, err := templates.Parse(format)
	if err != nil {
		return cli.StatusError{StatusCode: 64, Status: "template parsing error: " + err.Error()}
	}
	server, err := docker.Client().Info(cmd.Context())
	if err != nil {
		return err
	}
	var out strings.Builder
	if err := tmpl.Execute(&out, struct {
		ClientInfo clientInfo
		system.Info
	}{clientInfo{version, "satl", runtime.Version(), runtime.GOOS, runtime.GOARCH, units.BytesSize(float64(server.MemTotal))}, server}); err != nil {
		return fmt.Errorf("template: %w", err)
	}
	fmt.Fprintln(docker.Out(), out.String())
	for _, w := range server.Warnings {
		fmt.Fprintln(docker.Err(), w)
	}
	return nil
}
