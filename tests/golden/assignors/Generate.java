import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractStickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.message.JoinGroupRequestData.JoinGroupRequestProtocol;
import org.apache.kafka.common.message.JoinGroupRequestData.JoinGroupRequestProtocolCollection;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.group.classic.ClassicGroup;
import org.apache.kafka.coordinator.group.classic.ClassicGroupMember;
import org.apache.kafka.coordinator.group.classic.ClassicGroupState;

/**
 * Writes what Kafka's assignors answer to seeded random groups, one JSON line per case: see README.md.
 *
 * A group lives for some rounds. Each round is one case; then members take what they were assigned as their own, some
 * miss it, some claim what is not theirs, some leave, join or change their mind, and topics come, grow and go.
 */
@SuppressWarnings("removal") // that constructor of ConsumerGroupMetadata is the only one with a generation
public final class Generate {
    static final List<String> ASSIGNORS = List.of("range", "roundrobin", "sticky", "cooperative-sticky");
    static final String LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789";

    /** One member as it is when a rebalance starts. */
    static final class Member {
        List<String> topics = new ArrayList<>();
        List<TopicPartition> owned = List.of();
        int generation = -1;
        String instance = "";
        boolean joinedBefore = false;
    }

    /** The cooperative assignor before it withholds what others own. */
    static final class Target extends AbstractStickyAssignor {
        @Override
        public String name() {
            return "target";
        }

        @Override
        protected MemberData memberData(Subscription subscription) {
            return new MemberData(subscription.ownedPartitions(), subscription.generationId());
        }
    }

    final Random random;
    final Map<String, Integer> partitions = new TreeMap<>();
    final Map<String, Member> members = new TreeMap<>();
    final Set<String> used = new HashSet<>();
    int mostMembers = 12;
    int mostPartitions = 20;
    boolean mixed;
    boolean troubled;

    Generate(long seed) {
        random = new Random(seed * 0x9E3779B97F4A7C15L); // numbers in a row would begin alike
    }

    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[0]);
        int groups = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 100;
        for (String assignor : ASSIGNORS) {
            try (PrintStream out = open(folder, assignor)) {
                int rounds = assignor.endsWith("sticky") ? 5 : 2;
                for (int seed = 0; seed < groups; seed++) {
                    new Generate(seed).run(assignor, rounds, out);
                }
            }
        }
        try (PrintStream out = open(folder, "choose")) {
            for (int seed = 0; seed < groups; seed++) {
                new Generate(seed).choose(out);
            }
        }
    }

    static PrintStream open(Path folder, String name) throws Exception {
        return new PrintStream(folder.resolve(name + ".json").toFile(), StandardCharsets.UTF_8);
    }

    boolean chance(double probability) {
        return random.nextDouble() < probability;
    }

    String newName(String prefix) {
        while (true) {
            StringBuilder name = new StringBuilder(prefix);
            for (int left = 1 + random.nextInt(5); left > 0; left--) {
                name.append(LETTERS.charAt(random.nextInt(LETTERS.length())));
            }
            if (used.add(name.toString())) {
                return name.toString();
            }
        }
    }

    <T> T any(Collection<T> all) {
        return new ArrayList<>(all).get(random.nextInt(all.size()));
    }

    // --- a group's life

    void run(String assignor, int rounds, PrintStream out) {
        mixed = chance(0.5);
        troubled = chance(0.4);
        if (chance(0.06)) { // so many that the hash tables grow
            mostMembers = chance(0.5) ? 3 : 30;
            mostPartitions = mostMembers == 3 ? 90 : 20;
        }
        for (int left = 1 + random.nextInt(8); left > 0; left--) {
            addTopic();
        }
        List<String> common = someTopics();
        for (int left = (mostMembers > 12 ? 13 : 1) + random.nextInt(mostMembers > 12 ? 18 : mostMembers); left > 0; left--) {
            join(common);
        }
        for (int round = 0; round < rounds; round++) {
            Map<String, List<TopicPartition>> assigned;
            Map<String, List<TopicPartition>> target;
            try {
                assigned = assign(assignor);
                target = assignor.equals("cooperative-sticky") ? assign("target") : assigned;
            } catch (NullPointerException ofKafka) {
                return;
            }
            if (isWrong(target)) {
                return;
            }
            out.println(caseLine(answer(target, assigned)));
            takeOver(assigned, round);
            change();
        }
    }

    void addTopic() {
        partitions.put(newName(chance(0.5) ? "t" : ""), random.nextInt(mostPartitions + 1));
    }

    List<String> someTopics() {
        List<String> topics = new ArrayList<>();
        double probability = chance(0.3) ? 1 : 0.2 + 0.7 * random.nextDouble();
        for (String topic : partitions.keySet()) {
            if (chance(probability)) {
                topics.add(topic);
            }
        }
        if (chance(0.05)) {
            topics.add(newName("none")); // does not exist
        }
        if (topics.isEmpty() && !chance(0.02)) {
            topics.add(any(partitions.keySet()));
        }
        return topics;
    }

    void join(List<String> common) {
        Member member = new Member();
        member.topics = mixed ? someTopics() : common;
        if (chance(0.25)) {
            member.instance = newName("i");
        }
        members.put(newName(chance(0.05) ? (chance(0.5) ? "\u00e9" : "\ud83d\ude00") : chance(0.5) ? "consumer-" : ""), member);
    }

    void takeOver(Map<String, List<TopicPartition>> assigned, int round) {
        for (Map.Entry<String, Member> entry : members.entrySet()) {
            Member member = entry.getValue();
            if (troubled && chance(0.2)) {
                continue; // it missed the rebalance, and still has what it had
            }
            member.owned = assigned.get(entry.getKey());
            member.generation = round + 1;
            member.joinedBefore = true;
        }
        if (troubled && chance(0.3)) {
            List<TopicPartition> more = new ArrayList<>();
            Member liar = any(members.values());
            for (Member other : members.values()) {
                for (TopicPartition one : other.owned) {
                    if (!liar.owned.contains(one) && chance(0.3)) {
                        more.add(one);
                    }
                }
            }
            more.addAll(liar.owned);
            liar.owned = new ArrayList<>(new LinkedHashSet<>(more));
            liar.generation = chance(0.3) ? -1 : round + random.nextInt(3);
            liar.joinedBefore = true;
        }
    }

    void change() {
        for (int left = random.nextInt(3); left > 0 && members.size() > 1; left--) {
            members.remove(any(members.keySet()));
        }
        List<String> common = any(members.values()).topics;
        if (chance(0.3)) {
            if (chance(0.5)) {
                addTopic();
            } else if (partitions.size() > 1) {
                partitions.remove(any(partitions.keySet()));
            }
        }
        if (chance(0.3)) {
            partitions.computeIfPresent(any(partitions.keySet()), (topic, count) -> Math.min(mostPartitions, count + 3));
        }
        if (chance(0.2)) {
            common = someTopics();
            for (Member member : members.values()) {
                member.topics = common;
            }
        }
        for (Member member : members.values()) {
            if (mixed && chance(0.15)) {
                member.topics = someTopics();
            }
        }
        for (int left = random.nextInt(3); left > 0 && members.size() < mostMembers; left--) {
            join(common);
        }
    }

    // --- asking Kafka

    /** The group as the leader of a group sees it: what each member sent, in a hash table by member id. */
    Map<String, Subscription> subscriptions(String assignor) {
        Map<String, Subscription> sent = new HashMap<>();
        for (Map.Entry<String, Member> entry : members.entrySet()) {
            Member member = entry.getValue();
            AbstractPartitionAssignor mine = create(assignor);
            if (member.joinedBefore) {
                mine.onAssignment(new Assignment(member.owned),
                    new ConsumerGroupMetadata("group", member.generation, entry.getKey(), Optional.empty()));
            }
            Subscription subscription = new Subscription(member.topics,
                mine.subscriptionUserData(new TreeSet<>(member.topics)), member.owned, member.generation, Optional.empty());
            Subscription received =
                ConsumerProtocol.deserializeSubscription(ConsumerProtocol.serializeSubscription(subscription));
            received.setGroupInstanceId(member.instance.isEmpty() ? Optional.empty() : Optional.of(member.instance));
            sent.put(entry.getKey(), received);
        }
        return sent;
    }

    static AbstractPartitionAssignor create(String assignor) {
        return switch (assignor) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            case "cooperative-sticky" -> new CooperativeStickyAssignor();
            default -> new Target();
        };
    }

    Map<String, List<TopicPartition>> assign(String assignor) {
        List<PartitionInfo> infos = new ArrayList<>();
        partitions.forEach((topic, count) -> {
            for (int partition = 0; partition < count; partition++) {
                infos.add(new PartitionInfo(topic, partition, Node.noNode(), new Node[0], new Node[0]));
            }
        });
        Cluster cluster = new Cluster("cluster", List.of(), infos, Set.of(), Set.of());
        Map<String, List<TopicPartition>> assigned = new TreeMap<>();
        create(assignor).assign(cluster, new GroupSubscription(subscriptions(assignor))).groupAssignment()
            .forEach((member, given) -> assigned.put(member, given.partitions()));
        return assigned;
    }

    /** Whether a member got a partition of a topic that it does not subscribe to, that others have, or that is not. */
    boolean isWrong(Map<String, List<TopicPartition>> assigned) {
        Set<TopicPartition> seen = new HashSet<>();
        for (Map.Entry<String, List<TopicPartition>> entry : assigned.entrySet()) {
            for (TopicPartition one : entry.getValue()) {
                if (!members.get(entry.getKey()).topics.contains(one.topic()) || !seen.add(one)
                    || one.partition() >= partitions.getOrDefault(one.topic(), 0)) {
                    return true;
                }
            }
        }
        return false;
    }

    /** What was assigned; for the cooperative assignor the target, and what of it was withheld. */
    String answer(Map<String, List<TopicPartition>> target, Map<String, List<TopicPartition>> assigned) {
        if (target == assigned) {
            return "\"assigned\":" + assignment(assigned);
        }
        List<TopicPartition> withheld = new ArrayList<>();
        target.forEach((member, given) -> {
            List<TopicPartition> left = new ArrayList<>(given);
            left.removeAll(assigned.get(member));
            withheld.addAll(left);
            List<TopicPartition> kept = new ArrayList<>(given);
            kept.removeAll(left);
            if (!kept.equals(assigned.get(member))) {
                throw new AssertionError("more than withholding was done to the target");
            }
        });
        withheld.sort(Comparator.comparing(TopicPartition::topic).thenComparing(TopicPartition::partition));
        return "\"assigned\":" + assignment(target) + ",\"withheld\":" + list(withheld);
    }

    void choose(PrintStream out) {
        ClassicGroup group = new ClassicGroup(new LogContext(), "group", ClassicGroupState.EMPTY, Time.SYSTEM);
        StringBuilder line = new StringBuilder("{\"preferences\":{");
        List<List<String>> lists = new ArrayList<>();
        for (int left = 1 + random.nextInt(8); left > 0; left--) {
            List<String> names = new ArrayList<>(ASSIGNORS);
            Collections.shuffle(names, random);
            lists.add(names.subList(0, chance(0.7) ? 4 : 3));
        }
        int number = 0;
        for (List<String> names : lists) {
            JoinGroupRequestProtocolCollection protocols = new JoinGroupRequestProtocolCollection();
            for (String name : names) {
                protocols.add(new JoinGroupRequestProtocol().setName(name).setMetadata(new byte[0]));
            }
            String member = "m" + number++;
            if (number > 1 && !group.supportsProtocols("consumer", new HashSet<>(names))) {
                return; // such a member is not let in
            }
            group.add(new ClassicGroupMember(member, Optional.empty(), "client", "host", 1, 1, "consumer", protocols));
            if (number == 1) {
                group.transitionTo(ClassicGroupState.PREPARING_REBALANCE);
            }
            line.append(number > 1 ? "," : "").append(quote(member)).append(":[");
            for (int place = 0; place < names.size(); place++) {
                line.append(place > 0 ? "," : "").append(quote(names.get(place)));
            }
            line.append(']');
        }
        out.println(line.append("},\"chosen\":").append(quote(group.selectProtocol())).append('}'));
    }

    // --- writing it down

    String caseLine(String answer) {
        StringBuilder line = new StringBuilder("{\"partitions\":{");
        String between = "";
        for (Map.Entry<String, Integer> topic : partitions.entrySet()) {
            line.append(between).append(quote(topic.getKey())).append(':').append(topic.getValue());
            between = ",";
        }
        line.append("},\"members\":{");
        between = "";
        for (Map.Entry<String, Member> entry : members.entrySet()) {
            Member member = entry.getValue();
            line.append(between).append(quote(entry.getKey())).append(":[[");
            for (int place = 0; place < member.topics.size(); place++) {
                line.append(place > 0 ? "," : "").append(quote(member.topics.get(place)));
            }
            line.append("],").append(list(member.owned)).append(',').append(member.generation).append(',')
                .append(quote(member.instance)).append(']');
            between = ",";
        }
        return line.append("},").append(answer).append('}').toString();
    }

    static String assignment(Map<String, List<TopicPartition>> assigned) {
        StringBuilder text = new StringBuilder("{");
        assigned.forEach((member, given) ->
            text.append(text.length() > 1 ? "," : "").append(quote(member)).append(':').append(list(given)));
        return text.append('}').toString();
    }

    /** Partitions in order; a topic stands before the first of a run of its partitions. */
    static String list(List<TopicPartition> given) {
        StringBuilder text = new StringBuilder("[");
        String topic = null;
        for (TopicPartition one : given) {
            text.append(text.length() > 1 ? "," : "");
            if (!one.topic().equals(topic)) {
                topic = one.topic();
                text.append(quote(topic)).append(',');
            }
            text.append(one.partition());
        }
        return text.append(']').toString();
    }

    static String quote(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char unit : text.toCharArray()) {
            quoted.append(unit < 128 ? String.valueOf(unit) : String.format("\\u%04x", (int) unit));
        }
        return quoted.append('"').toString();
    }
}
