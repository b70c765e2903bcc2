package main

import (
	"github.com/spf13/cobra"

	"pktdirector/control"
	"pktdirector/dataplane"
)

// newConfigCommand joins what is about configuration files.
func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config COMMAND",
		Short: "Write the running state as a configuration file; the file's schema",
		Example: `  pktdirector config export -o director.yaml
  pktdirector config schema > director.schema.json`,
	}
	group(cmd)
	cmd.AddCommand(newConfigExportCommand(), newConfigSchemaCommand())
	return cmd
}

// newConfigSchemaCommand prints the configuration file's JSON Schema.
func newConfigSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of configuration files, for editors",
		Long: `Schema prints the JSON Schema (draft 2020-12) of configuration files. An editor that
knows YAML (yaml-language-server and others) offers the keys and marks what is wrong
while one types, where the file's first line is

  # yaml-language-server: $schema=director.schema.json

with the path or URL of the schema. What depends on two places of the file, only
"pktdirector check" sees.`,
		Example: "  pktdirector config schema > director.schema.json",
		Args:    cobra.NoArgs,
		RunE: failing(func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(configSchema())
			return err
		}),
	}
}

// configSchema is the schema with the settings that the engine has.
func configSchema() []byte {
	var settings []control.SettingRange
	for _, s := range dataplane.Settings() {
		settings = append(settings, control.SettingRange{Name: s.Name, Most: int64(s.Most)})
	}
	return control.Schema(settings)
}
