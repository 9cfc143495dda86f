/*
 * The client of `benchmarks.minimal_broker`, which repeats one request.
 *
 *   request_driver PORT REQUEST COUNT IN_FLIGHT
 *
 * Connects to 127.0.0.1:PORT and sends the bytes of the file REQUEST, their size included, COUNT
 * times. Only the correlation id differs: it counts from 0. IN_FLIGHT requests are in flight. After
 * each receive the client sends one request for each received response. Each request is a separate
 * send, as in Kafka's clients. The client checks the size and the correlation id of each response.
 * It prints a line with the microseconds from the first send to the last response.
 * It then prints the last response in hexadecimal, and closes the connection when its standard
 * input ends.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
	SIZE_BYTES = 4,
	CORRELATION_POSITION = 8,
	RESPONSE_BYTES_MAX = 1 << 10,
	IN_FLIGHT_MAX = 64,
};

static void fail(const char *what)
{
	fprintf(stderr, "request_driver: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint32_t read_u32(const unsigned char *at)
{
	uint32_t value;
	memcpy(&value, at, sizeof value);
	return ntohl(value);
}

static void write_u32(unsigned char *at, uint32_t value)
{
	value = htonl(value);
	memcpy(at, &value, sizeof value);
}

static unsigned char *read_file(const char *path, size_t *size)
{
	struct stat about;
	int file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0 || fstat(file, &about) < 0)
		fail(path);
	*size = (size_t)about.st_size;
	unsigned char *bytes = malloc(*size);
	if (bytes == NULL || read(file, bytes, *size) != (ssize_t)*size)
		fail(path);
	close(file);
	return bytes;
}

static int connect_to(int port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int yes = 1;
	int peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (peer < 0 || connect(peer, (struct sockaddr *)&address, sizeof address) < 0)
		fail("connect");
	setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
	return peer;
}

static void send_all(int peer, const unsigned char *at, size_t left)
{
	while (left > 0) {
		ssize_t sent = send(peer, at, left, MSG_NOSIGNAL);
		if (sent < 0)
			fail("send");
		at += sent;
		left -= (size_t)sent;
	}
}

int main(int count, char **words)
{
	static unsigned char input[IN_FLIGHT_MAX * RESPONSE_BYTES_MAX], last[RESPONSE_BYTES_MAX];
	struct timespec began, ended;
	if (count != 5) {
		fprintf(stderr, "usage: request_driver PORT REQUEST COUNT IN_FLIGHT\n");
		return 2;
	}
	uint32_t requests = (uint32_t)strtoul(words[3], NULL, 10);
	int in_flight = atoi(words[4]);
	if (in_flight < 1 || in_flight > IN_FLIGHT_MAX || requests < (uint32_t)in_flight) {
		fprintf(stderr, "request_driver: 1 to %d requests in flight\n", IN_FLIGHT_MAX);
		return 2;
	}
	size_t size;
	unsigned char *frame = read_file(words[2], &size);
	int peer = connect_to(atoi(words[1]));
	uint32_t sent = 0, answered = 0;
	size_t filled = 0, last_bytes = 0;
	uint32_t due = (uint32_t)in_flight;
	clock_gettime(CLOCK_MONOTONIC, &began);
	while (answered < requests) {
		for (; due > 0; due--, sent++) {
			write_u32(frame + CORRELATION_POSITION, sent);
			send_all(peer, frame, size);
		}
		ssize_t received = recv(peer, input + filled, sizeof input - filled, 0);
		if (received <= 0)
			fail("recv");
		filled += (size_t)received;
		size_t at = 0;
		uint32_t found = 0;
		while (filled - at >= SIZE_BYTES) {
			size_t response_bytes = SIZE_BYTES + read_u32(input + at);
			if (response_bytes > RESPONSE_BYTES_MAX) {
				fprintf(stderr, "request_driver: a response of %zu bytes\n", response_bytes);
				return 1;
			}
			if (filled - at < response_bytes)
				break;
			if (read_u32(input + at + SIZE_BYTES) != answered + found) {
				fprintf(stderr, "request_driver: a response has another correlation id\n");
				return 1;
			}
			last_bytes = response_bytes;
			memcpy(last, input + at, response_bytes);
			at += response_bytes;
			found++;
		}
		filled -= at;
		memmove(input, input + at, filled);
		answered += found;
		due = found < requests - sent ? found : requests - sent;
	}
	clock_gettime(CLOCK_MONOTONIC, &ended);
	printf("%.3f\n", (double)(ended.tv_sec - began.tv_sec) * 1e6 +
	                     (double)(ended.tv_nsec - began.tv_nsec) / 1e3);
	for (size_t at = 0; at < last_bytes; at++)
		printf("%02x", last[at]);
	printf("\n");
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
