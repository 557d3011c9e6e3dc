/*
 * Isolated mode: the device hands over what rules name, and the kernel keeps the rest. Two rules for each
 * service, of frames without a VLAN tag and with any. To some drivers the first means both (net_tap, mlx4, mlx5
 * by way of Verbs), and these refuse the second; to others it does not (mlx5 by itself).
 */
#include "shim.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_ethdev.h>
#include <rte_flow.h>

/* The driver's words, or none. */
static int refused(int rc, const struct rte_flow_error *error, char *why)
{
	snprintf(why, GN_WHY_BYTES, "%s", error->message != NULL ? error->message : "");
	return rc < 0 ? rc : -EIO;
}

int gn_port_isolate(uint16_t port, char *why)
{
	struct rte_flow_error error = { 0 };
	int rc = rte_flow_isolate(port, 1, &error);

	return rc == 0 ? 0 : refused(rc, &error, why);
}

/* The pattern of one service; its parts outlive the call that uses it. */
struct pattern {
	struct rte_flow_item items[5];
	struct rte_flow_item_eth eth, eth_mask;
	struct rte_flow_item_ipv4 v4, v4_mask;
	struct rte_flow_item_ipv6 v6, v6_mask;
	struct rte_flow_item_udp udp, udp_mask;
	struct rte_flow_item_tcp tcp, tcp_mask;
};

static struct rte_flow_item item(enum rte_flow_item_type type, const void *spec, const void *mask)
{
	return (struct rte_flow_item){ .type = type, .spec = spec, .mask = mask };
}

/* Frames to our Ethernet address, to the rule's IP address, to its port. */
static void fill(struct pattern *p, const struct gn_rule *rule, const struct rte_ether_addr *mac, int vlan)
{
	struct rte_flow_item *next = p->items;

	memset(p, 0, sizeof(*p));
	p->eth.hdr.dst_addr = *mac;
	memset(&p->eth_mask.hdr.dst_addr, 0xff, sizeof(p->eth_mask.hdr.dst_addr));
	*next++ = item(RTE_FLOW_ITEM_TYPE_ETH, &p->eth, &p->eth_mask);
	if (vlan)
		*next++ = item(RTE_FLOW_ITEM_TYPE_VLAN, NULL, NULL);
	if (rule->flags & GN_RULE_IPV6) {
		memcpy(&p->v6.hdr.dst_addr, rule->address, sizeof(p->v6.hdr.dst_addr));
		memset(&p->v6_mask.hdr.dst_addr, 0xff, sizeof(p->v6_mask.hdr.dst_addr));
		*next++ = item(RTE_FLOW_ITEM_TYPE_IPV6, &p->v6, &p->v6_mask);
	} else {
		memcpy(&p->v4.hdr.dst_addr, rule->address, sizeof(p->v4.hdr.dst_addr));
		p->v4_mask.hdr.dst_addr = RTE_BE32(UINT32_MAX);
		*next++ = item(RTE_FLOW_ITEM_TYPE_IPV4, &p->v4, &p->v4_mask);
	}
	if (rule->flags & GN_RULE_TCP) {
		p->tcp.hdr.dst_port = rte_cpu_to_be_16(rule->port);
		p->tcp_mask.hdr.dst_port = RTE_BE16(UINT16_MAX);
		*next++ = item(RTE_FLOW_ITEM_TYPE_TCP, &p->tcp, &p->tcp_mask);
	} else {
		p->udp.hdr.dst_port = rte_cpu_to_be_16(rule->port);
		p->udp_mask.hdr.dst_port = RTE_BE16(UINT16_MAX);
		*next++ = item(RTE_FLOW_ITEM_TYPE_UDP, &p->udp, &p->udp_mask);
	}
	*next = item(RTE_FLOW_ITEM_TYPE_END, NULL, NULL);
}

int gn_port_rule(uint16_t port, const struct gn_rule *rule, const struct gn_port_conf *conf, char *why)
{
	const struct rte_flow_attr attr = { .ingress = 1 };
	struct rte_flow_action_queue first = { .index = 0 };
	struct rte_flow_action_rss rss = {
		.types = rule->flags & GN_RULE_TCP ? RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP
						   : RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP,
		.key = conf->rss_key_bytes > 0 ? conf->rss_key : NULL,
		.key_len = conf->rss_key_bytes,
	};
	uint16_t queues[RTE_MAX_QUEUES_PER_PORT];
	struct rte_flow_action actions[2] = {
		{ .type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &first },
		{ .type = RTE_FLOW_ACTION_TYPE_END },
	};
	struct rte_flow_error error = { 0 };
	struct rte_eth_dev_info info;
	struct rte_ether_addr mac;
	struct pattern p;
	int rc = rte_eth_dev_info_get(port, &info);

	if (rc == 0)
		rc = rte_eth_macaddr_get(port, &mac);
	if (rc < 0)
		return refused(rc, &error, why);
	if (conf->queues > 1) {
		for (uint16_t q = 0; q < conf->queues && q < RTE_DIM(queues); q++)
			queues[q] = q;
		rss.types &= info.flow_type_rss_offloads;
		rss.queue = queues;
		rss.queue_num = RTE_MIN(conf->queues, RTE_DIM(queues));
		actions[0] = (struct rte_flow_action){ RTE_FLOW_ACTION_TYPE_RSS, &rss };
	}
	fill(&p, rule, &mac, 0);
	rc = rte_flow_validate(port, &attr, p.items, actions, &error);
	if (rc != 0)
		return refused(rc, &error, why);
	if (rte_flow_create(port, &attr, p.items, actions, &error) == NULL)
		return refused(-rte_errno, &error, why);
	fill(&p, rule, &mac, 1);
	return rte_flow_validate(port, &attr, p.items, actions, &error) != 0 ||
		rte_flow_create(port, &attr, p.items, actions, &error) == NULL;
}
