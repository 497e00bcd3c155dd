//! Reads a thousand lines of orders and adds up what they cost.

struct Order {
    item: String,
    cents: u64,
}

#[inline(never)]
fn parse_line(line: &str) -> Option<Order> {
    let (item, cents) = line.split_once('=')?;
    Some(Order { item: item.to_owned(), cents: cents.parse().ok()? })
}

#[inline(never)]
fn total(lines: &[String]) -> (u64, usize) {
    let mut sum = (0, 0);
    for line in lines {
        if let Some(order) = parse_line(line) {
            sum = (sum.0 + order.cents, sum.1 + order.item.len());
        }
    }
    sum
}

fn main() {
    let lines: Vec<String> = (0..1000).map(|i| format!("item {i}={}", i * 7)).collect();
    let (cents, letters) = total(&lines);
    println!("{cents} cents, {letters} letters");
}
