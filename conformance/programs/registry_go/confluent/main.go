// The scenarios on confluent-kafka-go's client and its serializers.
package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"conformance/common"

	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry/rest"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry/rules/encryption/deks"
)

var must = common.Must[schemaregistry.SchemaMetadata]

type scenarios struct {
	url, directory string
	client         schemaregistry.Client
}

func (s *scenarios) fresh(path string) schemaregistry.Client {
	return common.Must(schemaregistry.NewClient(schemaregistry.NewConfig(s.url + path)))
}

func (s *scenarios) schema(name, ending string) schemaregistry.SchemaInfo {
	text := common.Text(s.directory, name+"."+ending)
	return schemaregistry.SchemaInfo{Schema: text, SchemaType: common.Kinds[ending]}
}

func (s *scenarios) register(subject string, schema schemaregistry.SchemaInfo) int {
	return common.Must(s.client.Register(subject, schema, false))
}

func fails(code int, _ any, err error) {
	var found *rest.Error
	if !errors.As(err, &found) {
		panic(fmt.Sprintf("%v instead of error %d", err, code))
	}
	common.Same("error code", found.Code, code)
}

func sameLevel(what string, got, want schemaregistry.Compatibility) {
	common.Same(what, got.String(), want.String())
}

func (s *scenarios) lookups() {
	first, second := s.schema("order_1", "avsc"), s.schema("order_2", "avsc")
	common.Same("first id", s.register("orders", first), 1)
	response := must(s.client.RegisterFullResponse("orders", second, true))
	common.Same("second id", response.ID, 2)
	common.Same("the same schema", s.register("others", first), 1)
	fresh := s.fresh("")
	found := common.Must(fresh.GetBySubjectAndID("orders", 1))
	common.SameJSON("by id", found.Schema, first.Schema)
	common.Same("id", common.Must(fresh.GetID("orders", first, false)), 1)
	full := must(fresh.GetIDFullResponse("orders", second, false))
	common.Same("id", full.ID, 2)
	common.SameJSON("by guid", common.Must(fresh.GetByGUID(full.GUID)).Schema, second.Schema)
	common.Same("latest", must(fresh.GetLatestSchemaMetadata("orders")).Version, 2)
	common.Same("version 1", must(fresh.GetSchemaMetadata("orders", 1)).ID, 1)
	common.Same("versions", common.Must(fresh.GetAllVersions("orders")), []int{1, 2})
	common.Same("version", common.Must(fresh.GetVersion("orders", second, false)), 2)
	common.Same("subjects", common.Must(fresh.GetAllSubjects()), []string{"orders", "others"})
	uses := common.Must(fresh.GetSubjectsAndVersionsByID(1))
	common.Same("uses", uses, []schemaregistry.SubjectAndVersion{
		{Subject: "orders", Version: 1}, {Subject: "others", Version: 1},
	})
	for _, ending := range []string{"json", "proto"} {
		s.register(ending, s.schema("order_1", ending))
		kept := must(fresh.GetLatestSchemaMetadata(ending))
		common.Same("type", kept.SchemaType, common.Kinds[ending])
	}
}

func (s *scenarios) compatibility() {
	sameLevel("default", common.Must(s.client.GetDefaultCompatibility()), schemaregistry.Backward)
	for _, ending := range common.Endings {
		second, wrong := s.schema("order_2", ending), s.schema("incompatible", ending)
		s.register(ending, s.schema("order_1", ending))
		common.Same("second", common.Must(s.client.TestCompatibility(ending, 1, second)), true)
		common.Same("wrong", common.Must(s.client.TestCompatibility(ending, 1, wrong)), false)
		all := common.Must(s.client.TestSubjectCompatibility(ending, wrong))
		common.Same("with all versions", all, false)
		id, err := s.client.Register(ending, wrong, false)
		fails(409, id, err)
		none := common.Must(s.client.UpdateCompatibility(ending, schemaregistry.None))
		sameLevel("new level", none, schemaregistry.None)
		sameLevel("level", common.Must(s.client.GetCompatibility(ending)), schemaregistry.None)
		s.register(ending, wrong)
	}
	for _, level := range []schemaregistry.Compatibility{
		schemaregistry.None, schemaregistry.Backward, schemaregistry.Forward, schemaregistry.Full,
		schemaregistry.BackwardTransitive, schemaregistry.ForwardTransitive,
		schemaregistry.FullTransitive,
	} {
		common.Must(s.client.UpdateDefaultCompatibility(level))
		common.Same("default", common.Must(s.client.GetDefaultCompatibility()), level)
	}
}

func (s *scenarios) references() {
	for _, ending := range common.Endings {
		subject, line := "lines-"+ending, s.schema("line", ending)
		line.References = []schemaregistry.Reference{
			{Name: common.References[ending], Subject: ending, Version: 1},
		}
		id, err := s.client.Register(subject, line, false)
		fails(42201, id, err)
		s.register(ending, s.schema("order_1", ending))
		found := common.Must(s.fresh("").GetBySubjectAndID(subject, s.register(subject, line)))
		common.Same("references", found.References, line.References)
		version, err := s.client.DeleteSubjectVersion(ending, 1, false)
		fails(42206, version, err)
	}
}

func (s *scenarios) errors() {
	c, schema := s.client, s.schema("order_1", "avsc")
	versions, err := c.GetAllVersions("unknown")
	fails(40401, versions, err)
	latest, err := c.GetLatestSchemaMetadata("unknown")
	fails(40401, latest, err)
	deleted, err := c.DeleteSubject("unknown", false)
	fails(40401, deleted, err)
	found, err := c.GetBySubjectAndID("unknown", 99)
	fails(40403, found, err)
	s.register("orders", schema)
	missing, err := c.GetSchemaMetadata("orders", 9)
	fails(40402, missing, err)
	invalid, err := c.GetSchemaMetadata("orders", 0)
	fails(42202, invalid, err)
	version, err := c.GetVersion("orders", s.schema("order_2", "avsc"), false)
	fails(40403, version, err)
	level, err := c.GetCompatibility("orders")
	fails(40408, level, err)
	for _, ending := range common.Endings {
		id, err := c.Register("new", s.schema("invalid", ending), false)
		fails(42201, id, err)
	}
}

func (s *scenarios) deletes() {
	c, first := s.client, s.schema("order_1", "avsc")
	s.register("orders", first)
	s.register("orders", s.schema("order_2", "avsc"))
	version, err := c.DeleteSubjectVersion("orders", 1, true)
	fails(40407, version, err)
	common.Same("deleted", common.Must(c.DeleteSubjectVersion("orders", 1, false)), 1)
	common.Same("versions", common.Must(c.GetAllVersions("orders")), []int{2})
	kept := must(s.fresh("").GetSchemaMetadataIncludeDeleted("orders", 1, true))
	common.Same("id of the deleted version", kept.ID, 1)
	found := common.Must(s.fresh("").GetVersionIncludeDeleted("orders", first, false, true))
	common.Same("deleted version", found, 1)
	common.Same("deleted", common.Must(c.DeleteSubjectVersion("orders", 1, true)), 1)
	missing, err := s.fresh("").GetSchemaMetadataIncludeDeleted("orders", 1, true)
	fails(40402, missing, err)
	versions, err := c.DeleteSubject("orders", true)
	fails(40405, versions, err)
	common.Same("deleted", common.Must(c.DeleteSubject("orders", false)), []int{2})
	versions, err = c.DeleteSubject("orders", false)
	fails(40404, versions, err)
	common.Same("subjects", common.Must(c.GetAllSubjects()), []string{})
	common.Same("deleted", common.Must(c.DeleteSubject("orders", true)), []int{2})
}

func (s *scenarios) contexts() {
	first, second := s.schema("order_1", "avsc"), s.schema("order_2", "avsc")
	const qualified = ":.sales:orders"
	common.Same("id", s.register("orders", first), 1)
	common.Same("id in the context", s.register(qualified, second), 1)
	contexts := common.Must(s.client.GetAllContexts())
	slices.Sort(contexts)
	common.Same("contexts", contexts, []string{".", ".sales"})
	prefixed := s.fresh("/contexts/.sales")
	common.Same("subject", must(prefixed.GetLatestSchemaMetadata("orders")).Subject, qualified)
	common.Same("subjects", common.Must(prefixed.GetAllSubjects()), []string{qualified})
	fresh := s.fresh("")
	for subject, schema := range map[string]schemaregistry.SchemaInfo{
		"orders": first, qualified: second,
	} {
		found := common.Must(fresh.GetBySubjectAndID(subject, 1))
		common.SameJSON(subject, found.Schema, schema.Schema)
	}
}

func (s *scenarios) settings() {
	c := s.client
	sent := schemaregistry.ServerConfig{
		CompatibilityUpdate: schemaregistry.Full, CompatibilityGroup: "major", Normalize: true,
	}
	common.Must(c.UpdateConfig("orders", sent))
	found := common.Must(c.GetConfig("orders", false))
	sameLevel("level", found.CompatibilityLevel, schemaregistry.Full)
	common.Same("group", found.CompatibilityGroup, "major")
	common.Same("normalize", found.Normalize, true)
	common.Must(c.UpdateDefaultConfig(sent))
	common.Same("default", common.Must(c.GetDefaultConfig()).CompatibilityGroup, "major")
	inherited := common.Must(c.GetConfig("others", true))
	sameLevel("inherited", inherited.CompatibilityLevel, schemaregistry.Full)
}

func (s *scenarios) contracts() {
	schema := s.schema("order_1", "avsc")
	schema.Metadata = &schemaregistry.Metadata{Properties: map[string]string{"owner": "team"}}
	schema.RuleSet = &schemaregistry.RuleSet{DomainRules: []schemaregistry.Rule{{
		Name: "positive", Kind: "CONDITION", Mode: "WRITE", Type: "CEL", Expr: "message.amount > 0",
	}}}
	s.register("orders", schema)
	owner := map[string]string{"owner": "team"}
	found := must(s.client.GetLatestWithMetadata("orders", owner, false))
	common.Same("metadata", found.Metadata.Properties, owner)
	common.Same("rules", found.RuleSet.DomainRules, schema.RuleSet.DomainRules)
	others := map[string]string{"owner": "others"}
	missing, err := s.client.GetLatestWithMetadata("orders", others, false)
	fails(40403, missing, err)
}

// unsupported calls methods whose endpoints are not implemented. Each gets the error of a path.
func (s *scenarios) unsupported() {
	keys := common.Must(deks.NewClient(schemaregistry.NewConfig(s.url)))
	kek, err := keys.GetKek("kek", false)
	fails(404, kek, err)
	kek, err = keys.RegisterKek("kek", "local-kms", "1", nil, "", false)
	fails(404, kek, err)
	dek, err := keys.GetDekVersion("kek", "orders", 1, "AES256_GCM", false)
	fails(404, dek, err)
	dek, err = keys.GetDek("kek", "orders", "AES256_GCM", false)
	fails(404, dek, err)
	dek, err = keys.RegisterDek("kek", "orders", "AES256_GCM", "material")
	fails(404, dek, err)
}

func main() {
	url, directory, arguments := os.Args[2], os.Args[3], os.Args[4:]
	s := &scenarios{url: url, directory: directory}
	s.client = s.fresh("")
	map[string]func(){
		"lookups": s.lookups, "compatibility": s.compatibility, "references": s.references,
		"errors": s.errors, "deletes": s.deletes, "contexts": s.contexts, "settings": s.settings,
		"contracts": s.contracts, "generated": s.generated, "unsupported": s.unsupported,
		"write": func() { s.write(arguments[0], arguments[1], arguments[2], arguments[3]) },
		"read": func() {
			for _, topic := range arguments[3:] {
				s.read(arguments[0], arguments[1], common.Number(arguments[2]), topic)
			}
		},
	}[os.Args[1]]()
}
