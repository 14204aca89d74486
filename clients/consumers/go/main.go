// Reads a partition with one client and prints what the client returns: a JSON array of [offset, value].
//
//	consumers CLIENT TOPIC ISOLATION
//
// CLIENT is franz-go, sarama or segmentio; ISOLATION is read_committed or read_uncommitted. BROKERS, USERNAME and PASSWORD
// are in the environment (SASL_PLAINTEXT, SCRAM-SHA-512). Reading ends after three seconds without a record.
package main

import (
	"context"
	"crypto/sha512"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	segmentscram "github.com/segmentio/kafka-go/sasl/scram"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	xdgscram "github.com/xdg-go/scram"
)

const idle = 3 * time.Second

var (
	brokers  = strings.Split(os.Getenv("BROKERS"), ",")
	username = os.Getenv("USERNAME")
	password = os.Getenv("PASSWORD")
)

type row = [2]any

func main() {
	readers := map[string]func(topic string, committed bool) ([]row, error){
		"franz-go": readFranz, "sarama": readSarama, "segmentio": readSegmentio,
	}
	if len(os.Args) != 4 || readers[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: consumers franz-go|sarama|segmentio TOPIC read_committed|read_uncommitted")
		os.Exit(2)
	}
	rows, err := readers[os.Args[1]](os.Args[2], os.Args[3] == "read_committed")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(rows); err != nil {
		os.Exit(1)
	}
}

func readFranz(topic string, committed bool) ([]row, error) {
	isolation := kgo.ReadUncommitted()
	if committed {
		isolation = kgo.ReadCommitted()
	}
	start := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...),
		kgo.SASL(scram.Auth{User: username, Pass: password}.AsSha512Mechanism()),
		kgo.ConsumePartitions(start),
		kgo.FetchIsolationLevel(isolation),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	rows := []row{}
	for {
		ctx, cancel := context.WithTimeout(context.Background(), idle)
		fetches := client.PollFetches(ctx)
		cancel()
		if errors.Is(fetches.Err0(), context.DeadlineExceeded) {
			return rows, nil
		}
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			rows = append(rows, row{record.Offset, string(record.Value)})
		})
	}
}

func readSarama(topic string, committed bool) ([]row, error) {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Net.SASL.Enable = true
	config.Net.SASL.User, config.Net.SASL.Password = username, password
	config.Net.SASL.Mechanism = sarama.SASLTypeSCRAMSHA512
	config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &saramaScram{} }
	config.Consumer.Return.Errors = true
	if committed {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	consumer, err := sarama.NewConsumer(brokers, config)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	defer partition.Close()
	rows := []row{}
	for {
		select {
		case message := <-partition.Messages():
			rows = append(rows, row{message.Offset, string(message.Value)})
		case failure := <-partition.Errors():
			return nil, failure
		case <-time.After(idle):
			return rows, nil
		}
	}
}

func readSegmentio(topic string, committed bool) ([]row, error) {
	mechanism, err := segmentscram.Mechanism(segmentscram.SHA512, username, password)
	if err != nil {
		return nil, err
	}
	isolation := kafka.ReadUncommitted
	if committed {
		isolation = kafka.ReadCommitted
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:        brokers,
		Topic:          topic,
		Dialer:         &kafka.Dialer{Timeout: 10 * time.Second, SASLMechanism: mechanism},
		IsolationLevel: isolation,
		MaxWait:        500 * time.Millisecond,
	})
	defer reader.Close()
	rows := []row{}
	for {
		ctx, cancel := context.WithTimeout(context.Background(), idle)
		message, err := reader.ReadMessage(ctx)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			return rows, nil
		}
		if err != nil {
			return nil, err
		}
		rows = append(rows, row{message.Offset, string(message.Value)})
	}
}

// saramaScram is the SCRAM client that sarama requires its user to provide.
type saramaScram struct {
	*xdgscram.ClientConversation
}

func (s *saramaScram) Begin(user, secret, authzID string) error {
	var generate xdgscram.HashGeneratorFcn = func() hash.Hash { return sha512.New() }
	client, err := generate.NewClient(user, secret, authzID)
	if err != nil {
		return err
	}
	s.ClientConversation = client.NewConversation()
	return nil
}
