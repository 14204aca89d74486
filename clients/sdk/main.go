// The lifecycle of a cluster link and its mirror topics, driven by Confluent's own SDK (kafkarest, unmodified) against this
// product. Each step prints a line; the first step without the expected result ends the program with exit code 1.
//
// Environment: URL, API_KEY, API_SECRET, CLUSTER, SOURCE_CLUSTER, SOURCE_PROPERTIES and DESTINATION_PROPERTIES (JSON: client
// properties of the clusters), TOPIC_PROMOTED, TOPIC_FAILED_OVER, TOPIC_REVERSED.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	kafkarest "github.com/confluentinc/ccloud-sdk-go-v2/kafkarest/v3"
)

const (
	link     = "by-the-sdk"
	patience = 120 * time.Second // for asynchronous operations of the service; a busy machine is slow
)

var (
	cluster = os.Getenv("CLUSTER")
	api     kafkarest.ClusterLinkingV3Api
	ctx     context.Context
)

func main() {
	configuration := kafkarest.NewConfiguration()
	configuration.Servers = kafkarest.ServerConfigurations{{URL: os.Getenv("URL")}}
	configuration.HTTPClient = &http.Client{Timeout: 60 * time.Second}
	client := kafkarest.NewAPIClient(configuration)
	api = client.ClusterLinkingV3Api
	credentials := kafkarest.BasicAuth{UserName: os.Getenv("API_KEY"), Password: os.Getenv("API_SECRET")}
	ctx = context.WithValue(context.Background(), kafkarest.ContextBasicAuth, credentials)

	createLink()
	createMirrors()
	changeConfigs()
	operate()
	remove(client)
	goBothWays()
}

func createLink() {
	body := kafkarest.NewCreateLinkRequestData()
	body.SetSourceClusterId(os.Getenv("SOURCE_CLUSTER"))
	body.SetConfigs(configsOf("SOURCE_PROPERTIES"))
	answer, err := api.CreateKafkaLink(ctx, cluster).LinkName(link).ValidateOnly(true).CreateLinkRequestData(*body).Execute()
	expect("a link is checked and not created", err, answer.StatusCode == 200 && missing())
	answer, err = api.CreateKafkaLink(ctx, cluster).LinkName(link).CreateLinkRequestData(*body).Execute()
	expect("a link is created", err, answer.StatusCode == 204)
	links, _, err := api.ListKafkaLinks(ctx, cluster).Execute()
	expect("links are listed", err, len(links.GetData()) >= 1 && links.Metadata.GetNext() == "")
	shown, _, err := api.GetKafkaLink(ctx, cluster, link).IncludeTasks(true).Execute()
	expect("the link is described with its tasks", err, shown.GetLinkState() == "ACTIVE" && len(shown.GetTasks()) >= 4)
}

func createMirrors() {
	for _, topic := range topics() {
		body := kafkarest.NewCreateMirrorTopicRequestData(topic)
		answer, err := api.CreateKafkaMirrorTopic(ctx, cluster, link).CreateMirrorTopicRequestData(*body).Execute()
		expect("mirror topic "+topic+" is created", err, answer.StatusCode == 204)
	}
	for _, topic := range topics() {
		until("mirror topic "+topic+" holds every record", func() bool { return caughtUp(topic) })
	}
	listed, _, err := api.ListKafkaMirrorTopicsUnderLink(ctx, cluster, link).MirrorStatus(kafkarest.ACTIVE).Execute()
	expect("mirrors of the link are listed by status", err, len(listed.GetData()) == 2)
	all, _, err := api.ListKafkaMirrorTopics(ctx, cluster).Execute()
	expect("mirrors of all links are listed", err, len(all.GetData()) >= 2)
}

func changeConfigs() {
	interval := kafkarest.NewAlterConfigBatchRequestDataData("topic.config.sync.ms")
	interval.SetValue("7000")
	batch := kafkarest.NewAlterConfigBatchRequestData([]kafkarest.AlterConfigBatchRequestDataData{*interval})
	_, err := api.UpdateKafkaLinkConfigBatch(ctx, cluster, link).AlterConfigBatchRequestData(*batch).Execute()
	expect("configs are altered in a batch", err, config("topic.config.sync.ms") == "7000")
	value := kafkarest.NewUpdateLinkConfigRequestData("8000")
	_, err = api.UpdateKafkaLinkConfig(ctx, cluster, link, "topic.config.sync.ms").UpdateLinkConfigRequestData(*value).Execute()
	expect("a config is set", err, config("topic.config.sync.ms") == "8000")
	_, err = api.DeleteKafkaLinkConfig(ctx, cluster, link, "topic.config.sync.ms").Execute()
	expect("a config is reset", err, config("topic.config.sync.ms") == "5000")
	configs, _, err := api.ListKafkaLinkConfigs(ctx, cluster, link).Execute()
	expect("configs are listed", err, len(configs.GetData()) > 40)
}

func operate() {
	promoted, failedOver := topics()[0], topics()[1]
	chosen := *names(promoted)
	paused, _, err := api.UpdateKafkaMirrorTopicsPause(ctx, cluster, link).AlterMirrorsRequestData(chosen).Execute()
	expect("a mirror is paused", err, accepted(paused) && status(promoted) == kafkarest.PAUSED)
	again, _, err := api.UpdateKafkaMirrorTopicsPause(ctx, cluster, link).AlterMirrorsRequestData(chosen).Execute()
	expect("pausing twice is refused in its row", err, !accepted(again))
	resumed, _, err := api.UpdateKafkaMirrorTopicsResume(ctx, cluster, link).AlterMirrorsRequestData(chosen).Execute()
	expect("a mirror is resumed", err, accepted(resumed) && status(promoted) == kafkarest.ACTIVE)
	dry, _, err := api.UpdateKafkaMirrorTopicsPromote(ctx, cluster, link).ValidateOnly(true).AlterMirrorsRequestData(chosen).Execute()
	expect("a promotion is checked", err, accepted(dry) && status(promoted) == kafkarest.ACTIVE)
	stopping, _, err := api.UpdateKafkaMirrorTopicsPromote(ctx, cluster, link).AlterMirrorsRequestData(chosen).Execute()
	expect("a promotion is accepted", err, accepted(stopping))
	until("the promoted topic is stopped", func() bool { return status(promoted) == kafkarest.STOPPED })
	over, _, err := api.UpdateKafkaMirrorTopicsFailover(ctx, cluster, link).AlterMirrorsRequestData(*names(failedOver)).Execute()
	expect("a failover is accepted", err, accepted(over))
	until("the topic that failed over is stopped", func() bool { return status(failedOver) == kafkarest.STOPPED })
}

func remove(client *kafkarest.APIClient) {
	for _, topic := range topics() {
		answer, err := client.TopicV3Api.DeleteKafkaTopic(ctx, cluster, topic).Execute()
		expect("topic "+topic+" is deleted", err, answer.StatusCode == 204)
		until("mirror topic "+topic+" is gone", func() bool { return mirrorMissing(topic) })
	}
	answer, err := api.DeleteKafkaLink(ctx, cluster, link).Execute()
	expect("the link is deleted", err, answer.StatusCode == 200)
	expect("the link is gone", nil, missing())
}

func topics() []string {
	return []string{os.Getenv("TOPIC_PROMOTED"), os.Getenv("TOPIC_FAILED_OVER")}
}

func configsOf(variable string) []kafkarest.ConfigData {
	var properties map[string]string
	if err := json.Unmarshal([]byte(os.Getenv(variable)), &properties); err != nil {
		fail(variable+" is not valid JSON", err)
	}
	configs := []kafkarest.ConfigData{}
	for name, value := range properties {
		configs = append(configs, configOf(name, value))
	}
	return configs
}

func configOf(name string, value string) kafkarest.ConfigData {
	return *kafkarest.NewConfigData(name, *kafkarest.NewNullableString(kafkarest.PtrString(value)))
}

func names(topic string) *kafkarest.AlterMirrorsRequestData {
	body := kafkarest.NewAlterMirrorsRequestData()
	body.SetMirrorTopicNames([]string{topic})
	return body
}

func accepted(answer kafkarest.AlterMirrorStatusResponseDataList) bool {
	rows := answer.GetData()
	for _, row := range rows {
		if row.ErrorCode.Get() != nil {
			fmt.Println("refused:", row.GetMirrorTopicName(), row.GetErrorCode(), row.GetErrorMessage())
		}
	}
	return len(rows) == 1 && rows[0].ErrorCode.Get() == nil
}

func mirror(topic string) kafkarest.ListMirrorTopicsResponseData {
	shown, _, err := api.ReadKafkaMirrorTopic(ctx, cluster, link, topic).IncludeStateTransitionErrors(true).Execute()
	if err != nil {
		fail("mirror topic "+topic+" is read", err)
	}
	return shown
}

func status(topic string) kafkarest.MirrorTopicStatus {
	shown := mirror(topic)
	return shown.GetMirrorStatus()
}

func caughtUp(topic string) bool {
	return hasCaughtUp(mirror(topic))
}

func hasCaughtUp(shown kafkarest.ListMirrorTopicsResponseData) bool {
	for _, lag := range shown.MirrorLags.Items {
		if lag.Lag != 0 {
			return false
		}
	}
	return shown.GetMirrorStatus() == kafkarest.ACTIVE && len(shown.MirrorLags.Items) > 0
}

func config(name string) string {
	shown, _, err := api.GetKafkaLinkConfigs(ctx, cluster, link, name).Execute()
	if err != nil {
		fail("config "+name+" is read", err)
	}
	return shown.GetValue()
}

func missing() bool {
	_, answer, _ := api.GetKafkaLink(ctx, cluster, link).Execute()
	return answer != nil && answer.StatusCode == 404
}

func mirrorMissing(topic string) bool {
	_, answer, _ := api.ReadKafkaMirrorTopic(ctx, cluster, link, topic).Execute()
	return answer != nil && answer.StatusCode == 404
}

func until(what string, seen func() bool) {
	for end := time.Now().Add(patience); !seen(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			fail(what, nil)
		}
	}
	fmt.Println("ok  ", what)
}

func expect(what string, err error, fine bool) {
	if err != nil || !fine {
		fail(what, err)
	}
	fmt.Println("ok  ", what)
}

func fail(what string, err error) {
	fmt.Println("FAIL", what)
	if err != nil {
		detail := err.Error()
		if known, ok := err.(kafkarest.GenericOpenAPIError); ok {
			detail += " " + strings.TrimSpace(string(known.Body()))
		}
		fmt.Println("    ", detail)
	}
	os.Exit(1)
}
