// The scenarios on franz-go's client of the registry and its Serde.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"conformance/common"

	"github.com/twmb/franz-go/pkg/sr"
)

var (
	kinds      = map[string]sr.SchemaType{"avsc": sr.TypeAvro, "json": sr.TypeJSON, "proto": sr.TypeProtobuf}
	background = context.Background()
	deleted    = sr.WithParams(background, sr.ShowDeleted)
)

type scenarios struct {
	directory string
	client    *sr.Client
}

func (s *scenarios) schema(name, ending string) sr.Schema {
	return sr.Schema{Schema: common.Text(s.directory, name+"."+ending), Type: kinds[ending]}
}

func (s *scenarios) create(subject string, schema sr.Schema) sr.SubjectSchema {
	return common.Must(s.client.CreateSchema(background, subject, schema))
}

func fails(code int, err error) {
	var found *sr.ResponseError
	if !errors.As(err, &found) {
		panic(fmt.Sprintf("%v instead of error %d", err, code))
	}
	common.Same("error code", found.ErrorCode, code)
}

func (s *scenarios) lookups() {
	c, first, second := s.client, s.schema("order_1", "avsc"), s.schema("order_2", "avsc")
	common.Same("id", s.create("orders", first).ID, 1)
	found := s.create("orders", second)
	common.Same("version", []int{found.ID, found.Version}, []int{2, 2})
	registered := common.Must(c.RegisterSchema(background, "others", first, -1, -1))
	common.Same("the same schema", registered, 1)
	common.SameJSON("by id", common.Must(c.SchemaByID(background, 1)).Schema, first.Schema)
	common.SameJSON("text", common.Must(c.SchemaTextByID(background, 1)), first.Schema)
	text := common.Must(c.SchemaTextByVersion(background, "orders", 2))
	common.SameJSON("text of the version", text, second.Schema)
	subjects := []string{"orders", "others"}
	common.Same("subjects by id", common.Must(c.SubjectsByID(background, 1)), subjects)
	versions := common.Must(c.SchemaVersionsByID(background, 1))
	common.Same("versions by id", len(versions), 2)
	common.Same("subjects", common.Must(c.Subjects(background)), subjects)
	prefixed := sr.WithParams(background, sr.SubjectPrefix("or"))
	common.Same("with a prefix", common.Must(c.Subjects(prefixed)), subjects[:1])
	common.Same("versions", common.Must(c.SubjectVersions(background, "orders")), []int{1, 2})
	common.Same("version 1", common.Must(c.SchemaByVersion(background, "orders", 1)).ID, 1)
	common.Same("latest", common.Must(c.SchemaByVersion(background, "orders", -1)).ID, 2)
	looked := common.Must(c.LookupSchema(background, "orders", second))
	common.Same("looked up", looked.Version, 2)
	common.Same("all schemas", len(common.Must(c.AllSchemas(background))), 3)
	common.Same("schemas", len(common.Must(c.Schemas(background, "orders"))), 2)
	common.Same("usages", len(common.Must(c.SchemaUsagesByID(background, 1))), 2)
	types := common.Must(c.SupportedTypes(background))
	slices.Sort(types)
	common.Same("types", types, []sr.SchemaType{sr.TypeAvro, sr.TypeProtobuf, sr.TypeJSON})
	s.lookUpGUID(second)
	for _, ending := range []string{"json", "proto"} {
		s.create(ending, s.schema("order_1", ending))
		kept := common.Must(c.SchemaByVersion(background, ending, -1))
		common.Same("type", kept.Type, kinds[ending])
	}
}

// lookUpGUID reads the GUID from a raw response, because SubjectSchema has no field for it.
func (s *scenarios) lookUpGUID(schema sr.Schema) {
	var raw struct {
		GUID string `json:"guid"`
	}
	common.Check(s.client.Do(background, "GET", "/schemas/ids/2", nil, &raw))
	found := common.Must(s.client.SchemaByGUID(background, raw.GUID))
	common.SameJSON("by guid", found.Schema.Schema, schema.Schema)
	ids := common.Must(s.client.SchemaIDsByGUID(background, raw.GUID))
	common.Same("ids", ids, []sr.ContextID{{Context: ".", ID: 2}})
}

func (s *scenarios) level(subjects ...string) sr.CompatibilityLevel {
	result := s.client.Compatibility(background, subjects...)[0]
	common.Check(result.Err)
	return result.Level
}

func (s *scenarios) setLevel(level sr.CompatibilityLevel, subjects ...string) {
	update := sr.SetCompatibility{Level: level}
	common.Check(s.client.SetCompatibility(background, update, subjects...)[0].Err)
}

func (s *scenarios) compatibility() {
	common.Same("default", s.level(), sr.CompatBackward)
	for _, ending := range common.Endings {
		second, wrong := s.schema("order_2", ending), s.schema("incompatible", ending)
		s.create(ending, s.schema("order_1", ending))
		for _, version := range []int{1, -1, -2} {
			good := common.Must(s.client.CheckCompatibility(background, ending, version, second))
			common.Same("second", good.Is, true)
			verbose := sr.WithParams(background, sr.Verbose)
			bad := common.Must(s.client.CheckCompatibility(verbose, ending, version, wrong))
			common.Same("wrong", bad.Is, false)
			common.Same("reasons", len(bad.Messages) > 0, true)
		}
		_, err := s.client.CreateSchema(background, ending, wrong)
		fails(409, err)
		s.setLevel(sr.CompatNone, ending)
		common.Same("level", s.level(ending), sr.CompatNone)
		s.create(ending, wrong)
		common.Check(s.client.ResetCompatibility(background, ending)[0].Err)
		fails(40408, s.client.Compatibility(background, ending)[0].Err)
		inherited := sr.WithParams(background, sr.DefaultToGlobal)
		common.Same("inherited", s.client.Compatibility(inherited, ending)[0].Level, sr.CompatBackward)
	}
	for level := sr.CompatNone; level <= sr.CompatFullTransitive; level++ {
		s.setLevel(level)
		common.Same("default", s.level(), level)
	}
	common.Check(s.client.ResetCompatibility(background)[0].Err)
	common.Same("default", s.level(), sr.CompatBackward)
}

func (s *scenarios) references() {
	for _, ending := range common.Endings {
		subject, line := "lines-"+ending, s.schema("line", ending)
		line.References = []sr.SchemaReference{
			{Name: common.References[ending], Subject: ending, Version: 1},
		}
		_, err := s.client.CreateSchema(background, subject, line)
		fails(42201, err)
		s.create(ending, s.schema("order_1", ending))
		id := s.create(subject, line).ID
		found := common.Must(s.client.SchemaByID(background, id))
		common.Same("references", found.References, line.References)
		users := common.Must(s.client.SchemaReferences(background, ending, 1))
		common.Same("users", users[0].Subject, subject)
		fails(42206, s.client.DeleteSchema(background, ending, 1, sr.SoftDelete))
	}
}

func (s *scenarios) errors() {
	c := s.client
	_, err := c.SubjectVersions(background, "unknown")
	fails(40401, err)
	_, err = c.SchemaByVersion(background, "unknown", -1)
	fails(40401, err)
	_, err = c.LookupSchema(background, "unknown", s.schema("order_1", "avsc"))
	fails(40401, err)
	_, err = c.DeleteSubject(background, "unknown", sr.SoftDelete)
	fails(40401, err)
	_, err = c.SchemaByID(background, 99)
	fails(40403, err)
	s.create("orders", s.schema("order_1", "avsc"))
	_, err = c.SchemaByVersion(background, "orders", 9)
	fails(40402, err)
	_, err = c.SchemaByVersion(background, "orders", 0)
	fails(42202, err)
	_, err = c.LookupSchema(background, "orders", s.schema("order_2", "avsc"))
	fails(40403, err)
	fails(40409, c.Mode(background, "orders")[0].Err)
	for _, ending := range common.Endings {
		_, err = c.CreateSchema(background, "new", s.schema("invalid", ending))
		fails(42201, err)
	}
}

func (s *scenarios) deletes() {
	c, first := s.client, s.schema("order_1", "avsc")
	s.create("orders", first)
	s.create("orders", s.schema("order_2", "avsc"))
	common.Check(c.DeleteSchema(background, "orders", 1, sr.SoftDelete))
	fails(40406, c.DeleteSchema(background, "orders", 1, sr.SoftDelete))
	common.Same("versions", common.Must(c.SubjectVersions(background, "orders")), []int{2})
	common.Same("all", common.Must(c.SubjectVersions(deleted, "orders")), []int{1, 2})
	only := sr.WithParams(background, sr.DeletedOnly)
	common.Same("deleted", common.Must(c.SubjectVersions(only, "orders")), []int{1})
	looked := common.Must(c.LookupSchema(deleted, "orders", first))
	common.Same("looked up", looked.Version, 1)
	common.Check(c.DeleteSchema(background, "orders", 1, sr.HardDelete))
	_, err := c.SchemaByVersion(deleted, "orders", 1)
	fails(40402, err)
	_, err = c.DeleteSubject(background, "orders", sr.HardDelete)
	fails(40405, err)
	versions := common.Must(c.DeleteSubject(background, "orders", sr.SoftDelete))
	common.Same("deleted versions", versions, []int{2})
	common.Same("subjects", len(common.Must(c.Subjects(background))), 0)
	common.Same("deleted subjects", common.Must(c.Subjects(only)), []string{"orders"})
	versions = common.Must(c.DeleteSubject(background, "orders", sr.HardDelete))
	common.Same("deleted versions", versions, []int{2})
	common.Same("deleted subjects", len(common.Must(c.Subjects(deleted))), 0)
}

func (s *scenarios) contexts() {
	first, second := s.schema("order_1", "avsc"), s.schema("order_2", "avsc")
	sales := sr.InContext(background, ".sales")
	common.Same("id", s.create("orders", first).ID, 1)
	id := common.Must(s.client.CreateSchema(sales, "orders", second)).ID
	common.Same("id in the context", id, 1)
	contexts := common.Must(s.client.Contexts(background))
	common.Same("contexts", contexts, []string{".", ".sales"})
	common.Same("subjects", common.Must(s.client.Subjects(sales)), []string{":.sales:orders"})
	common.SameJSON("by id", common.Must(s.client.SchemaByID(sales, 1)).Schema, second.Schema)
	qualified := sr.WithParams(background, sr.Subject(":.sales:orders"))
	found := common.Must(s.client.SchemaByID(qualified, 1))
	common.SameJSON("by id and subject", found.Schema, second.Schema)
	fails(42211, s.client.DeleteContext(background, ".sales"))
	for _, how := range []sr.DeleteHow{sr.SoftDelete, sr.HardDelete} {
		common.Must(s.client.DeleteSubject(sales, "orders", how))
	}
	common.Check(s.client.DeleteContext(background, ".sales"))
	common.Same("contexts", common.Must(s.client.Contexts(background)), []string{"."})
}

func (s *scenarios) settings() {
	update := sr.SetCompatibility{Level: sr.CompatFull, Group: "major", Normalize: true}
	common.Check(s.client.SetCompatibility(background, update, "orders")[0].Err)
	found := s.client.Compatibility(background, "orders")[0]
	common.Same("group", found.Group, "major")
	common.Same("normalize", found.Normalize, true)
	mode := func(subjects ...string) sr.Mode {
		result := s.client.Mode(background, subjects...)[0]
		common.Check(result.Err)
		return result.Mode
	}
	common.Same("mode", mode(), sr.ModeReadWrite)
	common.Check(s.client.SetMode(background, sr.ModeReadOnly, "orders")[0].Err)
	common.Same("mode", mode("orders"), sr.ModeReadOnly)
	_, err := s.client.CreateSchema(background, "orders", s.schema("order_1", "avsc"))
	fails(42205, err)
	common.Check(s.client.ResetMode(background, "orders")[0].Err)
	s.create("orders", s.schema("order_1", "avsc"))
	fails(42205, s.client.SetMode(background, sr.ModeImport)[0].Err)
	forced := sr.WithParams(background, sr.Force)
	common.Check(s.client.SetMode(forced, sr.ModeImport)[0].Err)
	imported := common.Must(s.client.RegisterSchema(
		background, "imported", s.schema("order_2", "avsc"), 40, 7))
	common.Same("imported id", imported, 40)
	common.Check(s.client.ResetMode(background)[0].Err)
	common.Same("mode", mode(), sr.ModeReadWrite)
}

func (s *scenarios) contracts() {
	schema := s.schema("order_1", "avsc")
	schema.SchemaMetadata = &sr.SchemaMetadata{Properties: map[string]string{"owner": "team"}}
	schema.SchemaRuleSet = &sr.SchemaRuleSet{DomainRules: []sr.SchemaRule{{
		Name: "positive", Kind: sr.SchemaRuleKindCondition, Mode: sr.SchemaRuleModeWrite,
		Type: "CEL", Expr: "message.amount > 0",
	}}}
	s.create("orders", schema)
	found := common.Must(s.client.SchemaByVersion(background, "orders", 1))
	common.Same("metadata", found.SchemaMetadata.Properties, schema.SchemaMetadata.Properties)
	common.Same("rule", found.SchemaRuleSet.DomainRules[0].Expr, "message.amount > 0")
}

func main() {
	url, directory, arguments := os.Args[2], os.Args[3], os.Args[4:]
	s := &scenarios{directory, common.Must(sr.NewClient(sr.URLs(url)))}
	map[string]func(){
		"lookups": s.lookups, "compatibility": s.compatibility, "references": s.references,
		"errors": s.errors, "deletes": s.deletes, "contexts": s.contexts, "settings": s.settings,
		"contracts": s.contracts,
		"write":     func() { s.write(arguments[0], arguments[1], arguments[2], arguments[3]) },
		"read": func() {
			for _, topic := range arguments[3:] {
				s.read(arguments[0], arguments[1], common.Number(arguments[2]), topic)
			}
		},
	}[os.Args[1]]()
}
