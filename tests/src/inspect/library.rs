//! The library's file: functions, data, and what the dynamic linker will put where.

use super::code::{decode, flow_of};
use iced_x86::{FlowControl, Instruction, Mnemonic};
use object::elf::{
    R_X86_64_64, R_X86_64_DTPMOD64, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT, R_X86_64_RELATIVE, RelocationType,
};
use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, RelocationFlags, RelocationTarget, SectionKind};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// A function, by its symbol.
#[derive(Clone, Debug)]
pub struct Function {
    /// Demangled, without hashes. Of several names the first.
    pub name: String,
    /// First address.
    pub start: u64,
    /// Address past the last.
    pub end: u64,
}

/// What the dynamic linker is asked to put somewhere.
#[derive(Clone, Debug)]
pub struct Relocation {
    /// Its type.
    pub kind: RelocationType,
    /// Where.
    pub slot: u64,
    /// What is added.
    pub addend: i64,
    /// The dynamic symbol, if there is one.
    pub symbol: Option<String>,
}

/// A piece of the file that is loaded.
struct Section {
    start: u64,
    bytes: Vec<u8>,
    /// As long as it is in memory.
    length: u64,
    is_code: bool,
}

/// The library.
pub struct Library {
    /// Its file.
    pub path: PathBuf,
    functions: BTreeMap<u64, Function>,
    /// Data symbols: end and name by start.
    objects: BTreeMap<u64, (u64, String)>,
    sections: Vec<Section>,
    /// Slots that the dynamic linker fills with the address of a dynamic symbol.
    imports: HashMap<u64, String>,
    /// Slots that it fills with an address of the library itself.
    relative: BTreeMap<u64, u64>,
    /// Entries of the procedure linkage table.
    linkage: HashMap<u64, String>,
    exports: BTreeMap<String, u64>,
    /// All dynamic relocations.
    pub relocations: Vec<Relocation>,
    /// Thread-local symbols: offset in the library's thread-local block.
    pub thread_locals: HashMap<String, u64>,
}

fn demangle(name: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(name))
}

impl Library {
    /// Reads the file.
    ///
    /// # Panics
    /// If it is not an unstripped shared library for x86_64.
    pub fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).expect("the library");
        let elf: ElfFile64<'_> = ElfFile64::parse(&*bytes).expect("an ELF file");
        assert!(elf.section_by_name(".relr.dyn").is_none(), "packed relocations are not understood here");
        let sections = elf.sections().filter(|s| s.address() != 0 && s.kind() != SectionKind::UninitializedTls);
        let sections = sections.map(|s| Section {
            start: s.address(),
            bytes: s.data().unwrap_or_default().to_vec(),
            length: s.size(),
            is_code: s.kind() == SectionKind::Text,
        });
        let mut this = Self {
            path: path.to_owned(),
            functions: BTreeMap::new(),
            objects: BTreeMap::new(),
            sections: sections.collect(),
            imports: HashMap::new(),
            relative: BTreeMap::new(),
            linkage: HashMap::new(),
            exports: BTreeMap::new(),
            relocations: Vec::new(),
            thread_locals: HashMap::new(),
        };
        this.read_symbols(&elf);
        this.read_relocations(&elf);
        this.read_linkage();
        this
    }

    fn read_symbols(&mut self, elf: &ElfFile64<'_>) {
        for symbol in elf.symbols().filter(|s| !s.is_undefined()) {
            let (start, size) = (symbol.address(), symbol.size());
            let name = demangle(symbol.name().unwrap_or_default());
            match symbol.kind() {
                object::SymbolKind::Text => {
                    self.functions.entry(start).or_insert(Function { name, start, end: start + size });
                }
                object::SymbolKind::Data if size > 0 => {
                    self.objects.entry(start).or_insert((start + size, name));
                }
                object::SymbolKind::Tls => {
                    self.thread_locals.insert(name, start);
                }
                _ => {}
            }
        }
        assert!(!self.functions.is_empty(), "{} was stripped", self.path.display());
        // The C runtime's few functions have no size: they reach to the next one, or to the end of their section.
        let starts: Vec<u64> = self.functions.keys().copied().collect();
        for (i, start) in starts.iter().enumerate() {
            let end = self.section(*start).map_or(*start, |s| s.start + s.length);
            let function = self.functions.get_mut(start).expect("its own key");
            if function.end == function.start {
                function.end = starts.get(i + 1).map_or(end, |next| end.min(*next));
            }
        }
        let exported = elf.dynamic_symbols().filter(|s| s.is_definition() && s.kind() == object::SymbolKind::Text);
        self.exports = exported.map(|s| (s.name().unwrap_or_default().to_owned(), s.address())).collect();
    }

    fn read_relocations(&mut self, elf: &ElfFile64<'_>) {
        let names: HashMap<_, _> =
            elf.dynamic_symbols().map(|s| (s.index(), s.name().unwrap_or_default().to_owned())).collect();
        for (slot, relocation) in elf.dynamic_relocations().into_iter().flatten() {
            let RelocationFlags::Elf { r_type } = relocation.flags() else { panic!("not a relocation of ELF") };
            let named = match relocation.target() {
                RelocationTarget::Symbol(index) => names.get(&index).cloned(),
                _ => None,
            };
            self.relocations.push(Relocation {
                kind: r_type,
                slot,
                addend: relocation.addend(),
                symbol: named.clone(),
            });
            match (r_type, named) {
                (R_X86_64_RELATIVE, _) => {
                    self.relative.insert(slot, relocation.addend() as u64);
                }
                (R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT | R_X86_64_64, Some(name)) => {
                    self.imports.insert(slot, name);
                }
                (R_X86_64_DTPMOD64 | object::elf::R_X86_64_TPOFF64, _) => {}
                (other, _) => panic!("relocation {other:?} is not understood here"),
            }
        }
    }

    fn read_linkage(&mut self) {
        // Code without functions.
        let tables = self.sections.iter().filter(|s| s.is_code);
        let tables = tables.filter(|s| self.functions.range(s.start..s.start + s.length).next().is_none());
        let mut previous: Option<Instruction> = None;
        for instruction in tables.flat_map(|table| decode(table.start, &table.bytes)) {
            if flow_of(&instruction) == FlowControl::IndirectBranch
                && instruction.is_ip_rel_memory_operand()
                && let Some(name) = self.imports.get(&instruction.ip_rel_memory_address())
            {
                let marked = previous.filter(|p| p.mnemonic() == Mnemonic::Endbr64);
                self.linkage.insert(marked.unwrap_or(instruction).ip(), name.clone());
            }
            previous = Some(instruction);
        }
    }

    /// Functions in the order of their addresses.
    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        self.functions.values()
    }

    /// The function that an address lies in.
    pub fn function_at(&self, address: u64) -> Option<&Function> {
        self.functions.range(..=address).next_back().map(|(_, f)| f).filter(|f| address < f.end)
    }

    /// The exported function of a name.
    ///
    /// # Panics
    /// If there is none.
    pub fn export(&self, name: &str) -> &Function {
        let start = self.exports.get(name).unwrap_or_else(|| panic!("{name} is not exported"));
        &self.functions[start]
    }

    /// Names of the exported functions.
    pub fn exports(&self) -> impl Iterator<Item = &str> {
        self.exports.keys().map(String::as_str)
    }

    /// The exported function of a name, if there is one.
    pub(super) fn export_start(&self, name: &str) -> Option<u64> {
        self.exports.get(name).copied()
    }

    /// Dynamic symbol whose address will be in a slot.
    pub(super) fn import(&self, slot: u64) -> Option<&str> {
        self.imports.get(&slot).map(String::as_str)
    }

    /// Address of the library that will be in a slot.
    pub(super) fn relative(&self, slot: u64) -> Option<u64> {
        self.relative.get(&slot).copied()
    }

    /// Slots with addresses of the library.
    pub(super) fn relatives(&self, from: u64, to: u64) -> impl Iterator<Item = u64> {
        self.relative.range(from..to).map(|(_, to)| *to)
    }

    fn section(&self, address: u64) -> Option<&Section> {
        self.sections.iter().find(|s| s.start <= address && address < s.start + s.length)
    }

    /// Whether an address lies in a section of code.
    pub(super) fn is_code(&self, address: u64) -> bool {
        self.section(address).is_some_and(|s| s.is_code)
    }

    /// The bytes of a range.
    pub(super) fn bytes(&self, from: u64, to: u64) -> Option<&[u8]> {
        let section = self.section(from)?;
        section.bytes.get((from - section.start) as usize..to.checked_sub(section.start)? as usize)
    }

    /// The eight bytes at an address, as the file has them.
    pub fn word(&self, address: u64) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(address, address + 8)?.try_into().ok()?))
    }

    /// Dynamic symbol that an entry of the procedure linkage table goes to.
    pub(super) fn linkage(&self, address: u64) -> Option<&str> {
        self.linkage.get(&address).map(String::as_str)
    }

    /// Where data begin that are referred to on their own: symbols, targets of relocations, slots of imports, and what follows the two words that name a
    /// thread-local variable.
    pub(super) fn data_starts(&self) -> BTreeSet<u64> {
        let thread_local = self.relocations.iter().filter(|r| r.kind == R_X86_64_DTPMOD64).map(|r| r.slot + 16);
        let data = self.objects.keys().chain(self.relative.values()).chain(self.imports.keys()).copied();
        data.chain(thread_local).filter(|a| !self.is_code(*a)).collect()
    }

    /// End of the data symbol or section that an address lies in.
    pub(super) fn end_of_data(&self, address: u64) -> Option<u64> {
        let object = self.objects.range(..=address).next_back().map(|(_, (end, _))| *end).filter(|end| address < *end);
        object.or_else(|| self.section(address).map(|s| s.start + s.length))
    }

    /// Name of the data at an address.
    pub fn name_of_data(&self, address: u64) -> String {
        let found = self.objects.range(..=address).next_back().filter(|(_, (end, _))| address < *end);
        found.map_or_else(|| format!("data at {address:#x}"), |(_, (_, name))| name.clone())
    }
}
