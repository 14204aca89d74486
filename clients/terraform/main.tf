# A link and two mirror topics, as a user of Confluent's provider writes them. The source's credentials are an API key, since
# the provider supports no others: this product connects to the source with the security with which it is registered.

terraform {
  required_providers {
    confluent = {
      source = "confluentinc/confluent"
    }
  }
}

provider "confluent" {}

variable "rest_endpoint" {}
variable "api_key" {}
variable "api_secret" { sensitive = true }
variable "source_id" {}
variable "source_bootstrap" {}
variable "destination_id" {}
variable "sync_ms" { default = "6000" }
variable "status_promoted" { default = "ACTIVE" }
variable "status_failed_over" { default = "ACTIVE" }

resource "confluent_cluster_link" "link" {
  link_name = "by-terraform"
  source_kafka_cluster {
    id                 = var.source_id
    bootstrap_endpoint = "SASL_SSL://${var.source_bootstrap}"
    credentials {
      key    = var.api_key
      secret = var.api_secret
    }
  }
  destination_kafka_cluster {
    id            = var.destination_id
    rest_endpoint = var.rest_endpoint
    credentials {
      key    = var.api_key
      secret = var.api_secret
    }
  }
  config = {
    "topic.config.sync.ms" = var.sync_ms
  }
}

resource "confluent_kafka_mirror_topic" "promoted" {
  source_kafka_topic {
    topic_name = "tf-promoted"
  }
  cluster_link {
    link_name = confluent_cluster_link.link.link_name
  }
  kafka_cluster {
    id            = var.destination_id
    rest_endpoint = var.rest_endpoint
    credentials {
      key    = var.api_key
      secret = var.api_secret
    }
  }
  status = var.status_promoted
}

resource "confluent_kafka_mirror_topic" "failed_over" {
  source_kafka_topic {
    topic_name = "tf-failed-over"
  }
  cluster_link {
    link_name = confluent_cluster_link.link.link_name
  }
  kafka_cluster {
    id            = var.destination_id
    rest_endpoint = var.rest_endpoint
    credentials {
      key    = var.api_key
      secret = var.api_secret
    }
  }
  status = var.status_failed_over
}

data "confluent_cluster_link" "link" {
  link_name     = confluent_cluster_link.link.link_name
  rest_endpoint = var.rest_endpoint
  kafka_cluster {
    id = var.destination_id
  }
  credentials {
    key    = var.api_key
    secret = var.api_secret
  }
}

output "link_state" {
  value = data.confluent_cluster_link.link.link_state
}
